"""scripts/gpu-speed with stand-ins for the programs: the tables it makes of their results, and what it does where a peer, a
profiler or time is missing. Called with the repository and a folder to write to."""

import json

from stand_ins import FOLDER, bad_calls_are_refused, check, machine, row

# Nsight Compute's raw page: a comment, the head, units, one line per call.
COUNTED = """==PROF== Connected to process 7
"ID","Kernel Name","gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed",\
"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed","gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",\
"launch__registers_per_thread","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","usecond","%","%","%","register/thread","%"
"0","void gemm<128, 64>(Params)","2,000.5","81.4","30","20.2","168","12.5"
"1","void Kokkos::Impl::launch<ParallelFor<minitaw::kernels::(anonymous namespace)::Rebuild<float, 4>, Policy>>(T)","100","9","92","91","32","88"
"2","void gemm<128, 64>(Params)","1,000","80","30","20","168","12.5"
"3","void a()","50","1","2","3","4","5"
"4","void b()","40","1","2","3","4","5"
"5","void c()","30","1","2","n/a","4","5"
"6","void d()","20","1","2","3","4","5"
"""
NCU = f"""while [ "$1" != --log-file ]; do shift; done
cat >"$2" <<'CSV'
{COUNTED}CSV"""

# Result files are text here: the shape and lengths that the script asked for.
MINITAW = """
case $1 in
  run) while [ $# -gt 0 ]; do
      case $1 in -o) out=$2 ;; hidden=*) hidden=${1#*=} ;; seq=*) seq=${1#*=} ;; esac; shift
    done
    echo "$hidden $seq" >>"$out"
    [ -z "$MINITAW_KERNEL_TIMES" ] || echo 'busy 99.9 %' >"$MINITAW_KERNEL_TIMES" ;;
  show) python3 - "$2" <<'PYTHON'
import json, sys
cases = []
for line in open(sys.argv[1]):
    hidden, lengths = line.split()
    for seq in lengths.split(","):
        cases.append({"status": "ok", "hidden": int(hidden), "seq [token]": 1024 * int(seq[:-1]), "tokens_per_s [token/s]": 3000.0,
                      "tflops_causal [TFLOP/s]": 494.5, "memory_measured [B]": 2 ** 30})
print(json.dumps(cases))
PYTHON
  ;;
esac"""


def peer(text):
    path = FOLDER / "peer.py"
    path.write_text(text, encoding="utf-8")
    return path


def steps_stand_beside_the_peer():
    machine(minitaw=MINITAW, ncu=NCU)
    script = peer("""
import json, sys
value = lambda name: int(sys.argv[sys.argv.index(name) + 1])
print(json.dumps({"hidden": value("--hidden"), "seq": value("--seq"), "tokens_per_s": 2000.0, "tflops_causal": 329.7}, indent=1))""")
    table, log = check("gpu-speed", "--peer", script, code=0)
    assert "| 4096 | 4096 | 3000 | 50.0 % | 1.0 | 2000 | 33.3 % | 1.50 |" in table, table
    assert "| 1024 | 4096 | 3000 | 50.0 % | 1.0 | - | - | - |" in table, table
    assert "| 4096 | 131072 |" in table and "RESULT: VALID" in table
    assert len((FOLDER / "out/peer.jsonl").read_text().splitlines()) == 5
    assert "--set ffn=2816" in log


def the_longest_kernels_are_summed_by_name():
    machine(minitaw=MINITAW, ncu=NCU)
    table, _ = check("gpu-speed", code=0)
    assert "| gemm | 2 | 3.00 | 93 % | 81 % | 30 % | 20 % | 12 % | 168 |" in table, table
    assert "| minitaw::kernels::(anonymous namespace)::Rebuild<float, 4> | 1 | 0.10 |" in table, table
    assert "| c | 1 | 0.03 | 1 % | 1 % | 2 % | - |" in table and "| d |" not in table, table


def gaps_are_measured_where_the_tool_was_built():
    machine(minitaw=MINITAW)
    table, _ = check("gpu-speed", code=0)
    assert "built without CUPTI" in row(table, "gaps between kernels") and "no ncu in PATH" in row(table, "five longest kernels")
    assert "no --peer" in row(table, "peer")
    machine(minitaw=MINITAW)
    (FOLDER / "place/lib").mkdir()
    (FOLDER / "place/lib/libminitaw_kernel_times.so").touch()
    table, _ = check("gpu-speed", code=0)
    assert " ok " in row(table, "gaps between kernels") and "busy 99.9 %" in table


def a_peer_that_fails_is_told_and_the_rest_goes_on():
    machine(minitaw=MINITAW)
    table, _ = check("gpu-speed", "--peer", peer("raise SystemExit('out of memory: error')"), code=0)
    assert "out of memory" in row(table, "peer, H = 4096, S = 65536") and "| 3000 | 50.0 % | 1.0 | - |" in table


def a_step_that_fails_is_a_failure():
    machine(minitaw="case $1 in run) echo 'minitaw: no device'; exit 2 ;; show) echo '[]' ;; esac")
    table, _ = check("gpu-speed", code=1)
    assert "no device" in row(table, "step, H = 4096, S = 4K,16K,64K") and "RESULT: INVALID" in table


def a_damaged_table_of_counters_is_refused():
    machine(minitaw=MINITAW, ncu=NCU.replace("usecond", "cycle"))
    table, log = check("gpu-speed", code=1)
    assert "FAILED" in row(table, "table of the counters") and "no unit of time" in log


steps_stand_beside_the_peer()
the_longest_kernels_are_summed_by_name()
gaps_are_measured_where_the_tool_was_built()
a_peer_that_fails_is_told_and_the_rest_goes_on()
a_step_that_fails_is_a_failure()
a_damaged_table_of_counters_is_refused()
bad_calls_are_refused("gpu-speed")
