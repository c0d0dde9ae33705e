# SPDX-License-Identifier: BSD-3-Clause
"""scripts/env on a machine of its own, made of this one: its /etc and the private roots are
folders of the test. What is built in a copied tree. The program where address space is scarce."""

import hashlib
import os
import pathlib
import shutil

import pytest
from programs import BUILD, MINITAW, REPOSITORY, call, minitaw, output_of, refused, says, told


def root_named(arch="", packages=b""):
    recipe = [REPOSITORY / "scripts" / name for name in ("packages.txt", "lib/root.sh")]
    text = os.uname().machine.encode() + b"\n" + packages.join(p.read_bytes() for p in recipe)
    return f"root-{arch}{hashlib.sha256(text).hexdigest()[:12]}"


ROOT = root_named()
ARM = root_named("arm64-", b"g++-aarch64-linux-gnu\nqemu-user\n")
OTHER = "root-of-an-older-checkout"
# As nobody but root may make mounts without becoming root in a namespace of his own.
NAMESPACE = ["unshare", *([] if os.getuid() == 0 else ["--user", "--map-root-user"]), "--mount"]
MACHINE = """
mount --bind etc /etc
find . -maxdepth 5 -path '*/root-*/usr' | while read -r usr; do mount --rbind /usr "$usr"; done
exec "$@"
"""
TELL = ["sh", "-c", 'cat /etc/minitaw-root; echo "$@"', "sh", "a word"]


def copy_scripts(tree):
    for name in ("env", "packages.txt", "lib"):
        copy = shutil.copytree if name == "lib" else shutil.copy2
        (tree / "scripts").mkdir(parents=True, exist_ok=True)
        copy(REPOSITORY / "scripts" / name, tree / "scripts" / name)


@pytest.fixture
def machine(tmp_path):
    """Calls a command there; `home` is the folder of its user, `theirs` another cache."""
    if call(*NAMESPACE, "true").returncode:
        pytest.skip("this machine does not let its users make mounts")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(f"root:x:0:0::{tmp_path}/home:/bin/sh\n")
    copy_scripts(tmp_path / "tree")

    def run(*words, **variables):
        inherited = os.environ | {"MINITAW_ENV": "debian", "HOME": f"{tmp_path}/home"} | variables
        environment = {name: value for name, value in inherited.items() if value is not None}
        command = [*NAMESPACE, "sh", "-ec", MACHINE, "sh", *words]
        return call(*command, cwd=tmp_path, env=environment)

    return run


def make_root(folder):
    for name in ("mnt", "usr", "etc"):
        (folder / name).mkdir(parents=True)
    (folder / "etc/passwd").touch()
    (folder / "etc/minitaw-root").write_text(f"{folder.name}\n")
    return folder.absolute()


def make_build(root):
    """As CMake leaves it in the tree, where the build was configured in this root."""
    build = pathlib.Path("tree/build/host")
    (build / "bin").mkdir(parents=True)
    (build / "CMakeCache.txt").write_text(f"MINITAW_ROOT:INTERNAL={root}\n")
    text = (REPOSITORY / "miniapp/launcher.in").read_text()
    names = {"MINITAW_ROOT": root, "program": "$here/bin/minitaw", "repository": "../.."}
    for name, value in names.items():
        text = text.replace(f"@{name}@", str(value))
    for path, lines in (("minitaw", text), ("bin/minitaw", '#!/bin/sh\nexec "$@"\n')):
        (build / path).write_text(lines)
        (build / path).chmod(0o755)
    return build / "minitaw"


def is_inside(done, root):
    assert (done.returncode, done.stdout) == (0, f"{root}\na word\n"), told(done)
    assert not pathlib.Path("home").exists()


def test_the_root_of_a_build_serves_others(machine):
    make_build(make_root(pathlib.Path("theirs") / ROOT))
    is_inside(machine("tree/scripts/env", *TELL), ROOT)
    is_inside(machine("tree/scripts/env", *TELL, HOME=None), ROOT)


def test_a_root_of_another_recipe_is_for_its_build_alone(machine):
    program = make_build(make_root(pathlib.Path("theirs") / OTHER))
    is_inside(machine(program, *TELL), OTHER)
    done = machine("tree/scripts/env", *TELL, MINITAW_MIRROR="file:/nothing")
    assert (done.returncode, done.stdout) == (1, ""), told(done)


@pytest.mark.skipif(os.uname().machine == "aarch64", reason="its own processor")
def test_another_processor_has_a_root_of_its_own(machine):
    for name in (ROOT, ARM):
        make_root(pathlib.Path("home/.cache/minitaw") / name)
    env = "tree/scripts/env"
    inside = machine(env, *TELL, MINITAW_ARCH="arm64", MINITAW_ENV=None)
    assert (inside.returncode, inside.stdout) == (0, f"{ARM}\na word\n"), told(inside)
    for words, variables, names in (
        ([env], {"MINITAW_ARCH": "riscv64"}, ["arm64", "riscv64"]),
        ([env, "env", "MINITAW_ARCH=arm64", env], {}, ["arm64", "outside"]),
    ):
        done = machine(*words, "true", **variables)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), told(done)
        says(done.stderr, *names)


@pytest.mark.parametrize("variable", [None, ""])
def test_the_home_of_a_user_is_known_without_the_variable(machine, variable):
    make_root(pathlib.Path("home/.cache/minitaw") / ROOT)
    done = machine("tree/scripts/env", *TELL, HOME=variable)
    assert (done.returncode, done.stdout) == (0, f"{ROOT}\na word\n"), told(done)


def test_a_program_is_never_given_a_new_environment(machine):
    program = make_build(pathlib.Path("theirs").absolute() / OTHER)
    done = machine(program, *TELL)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), told(done)
    says(done.stderr, OTHER, "quickstart", "MINITAW_CACHE")
    assert not pathlib.Path("home").exists()


def test_a_copied_tree_is_configured_anew():
    tree = pathlib.Path("tree")
    copy_scripts(tree)
    shutil.copy(REPOSITORY / "CMakePresets.json", tree)
    (tree / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(stub LANGUAGES NONE)\n"
    )
    begin = '. "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/lib/begin.sh"\n'
    (tree / "scripts/build").write_text(f"#!/bin/bash\n{begin}configure_preset host\n")
    (tree / "scripts/build").chmod(0o755)
    for folder, time in (("tree", "first"), ("tree", "again"), ("copy", "first")):
        if folder == "copy":
            shutil.copytree(tree, folder)
        done = call(f"{folder}/scripts/build")
        assert done.returncode == 0, told(done)
        build = pathlib.Path(folder, "build/host").absolute()
        says(
            (build / "CMakeCache.txt").read_text(), f"HOME_DIRECTORY:INTERNAL={build.parents[1]}\n"
        )
        assert (build / "object").exists() == (time == "again")
        (build / "object").touch()


def with_little_address_space(*arguments):
    """A gigabyte, which BLAS's buffers for 32 cores exceed."""
    script = 'ulimit -v 1000000; LD_PRELOAD=$0 exec "$@"'
    library = BUILD / "tests/scripts/libmany_cores.so"
    return call("sh", "-c", script, library, MINITAW, *arguments)


VERBS = ["--help", "help seq", "plan inputs/verify.toml --set=ranks=4"]
VERBS += ["predict --help"] * (BUILD / "bin/minitaw-predict").exists()


@pytest.mark.parametrize("words", VERBS)
def test_what_computes_nothing_needs_little_address_space(words, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    done = with_little_address_space(*words.split())
    assert output_of(done) == output_of(minitaw(*words.split()))


@pytest.mark.skipif("openblas" not in call("ldd", MINITAW).stdout, reason="other buffers")
def test_what_computes_says_that_address_space_is_too_small():
    for verb in ("run", "topo"):
        refused(with_little_address_space(verb), "ulimit -v", "OMP_NUM_THREADS")
