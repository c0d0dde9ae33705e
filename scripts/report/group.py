"""Which cases belong together: panels (all settings equal but schedule and sequence length) and lines in them."""

from .text import count_text, plural

# In the order in which they tell panels apart; one that follows from those before it is not named again.
SETTINGS = ["ranks", "groups", "replicas", "hidden", "layers", "dtype", "recompute", "micro_batches", "micro_batch", "micro_batch_per_rank",
            "vocab", "heads", "kv_heads", "ffn", "data", "attention", "transport", "seed", "learning_rate"]
NAMES = {"micro_batches": "M =", "micro_batch": "B =", "micro_batch_per_rank": "B of each rank", "vocab": "vocabulary",
         "learning_rate": "learning rate", "ffn": "feed-forward width"}
COUNTED = {"ranks": "rank", "layers": "layer", "heads": "head", "kv_heads": "key/value head"}
MOST_LINES = 8     # of a panel; of more the schedules are shown family by family
MOST_PANELS = 24   # of a section


def setting_text(name, value):
    if name in COUNTED:
        return plural(value, COUNTED[name])
    if name == "groups":
        return f"groups {value}"
    if name == "replicas":
        return f"{value} copies" if value != 1 else "1 copy"
    if name in ("dtype", "recompute"):
        return str(value) if name == "dtype" else f"recompute {value}"
    if name == "data":
        return f"tokens from {value}" if value != "synthetic" else "synthetic tokens"
    return f"{NAMES.get(name, name)} {value}"


def telling(cases, settings=SETTINGS):
    """The settings that tell these cases apart, without those that follow from others."""
    chosen = []
    for name in settings:
        before = {tuple(case[s] for s in chosen) for case in cases}
        after = {tuple(case[s] for s in [*chosen, name]) for case in cases}
        if len(after) > len(before):
            chosen.append(name)
    return chosen


def shared_settings(cases):
    """Texts of the settings that all cases have in common."""
    texts = []
    for name in SETTINGS:
        values = {case[name] for case in cases}
        if len(values) == 1 and (value := values.pop()) not in ("", "auto") and (name, value) != ("replicas", 1):
            texts.append(setting_text(name, value))
    return texts


def panels(cases):
    """[(title, cases)], in the order of the file. The title says what tells the panel from the others."""
    names = telling(cases)
    found = {}
    for case in cases:
        found.setdefault(tuple(case[name] for name in names), []).append(case)
    return [(", ".join(setting_text(n, v) for n, v in zip(names, key)), some) for key, some in found.items()]


def repeated(cases):
    """Whether files hold the same settings: then a line is one of a file."""
    seen = {}
    for case in cases:
        seen.setdefault(case["identity"], set()).add(case.file.letter)
    return any(len(letters) > 1 for letters in seen.values())


class Naming:
    """Names of lines: the schedule, with its file where several files have the same settings."""

    def __init__(self, cases):
        self.with_file = repeated(cases)

    def __call__(self, case):
        return case["schedule"] + (f" ({case.file.letter})" if self.with_file else "")


def family(name):
    """tawpipe of tawpipe:cco=off."""
    return name.split(":")[0].split(" ")[0]


def split_families(cases, naming):
    """[(suffix of the title, cases drawn, cases for comparison)]: one entry if there are few schedules."""
    names = dict.fromkeys(naming(case) for case in cases)
    if len(names) <= MOST_LINES:
        return [("", cases, [])]
    families = dict.fromkeys(family(name) for name in names)
    single = [f for f in families if sum(family(n) == f for n in names) == 1]
    chosen = [[f] for f in families if f not in single]
    chosen += [single[i:i + MOST_LINES] for i in range(0, len(single), MOST_LINES)]
    parts = []
    for some in chosen:
        inside = [case for case in cases if family(naming(case)) in some]
        parts.append((", ".join(some), inside, [case for case in cases if family(naming(case)) not in some]))
    return parts


def lines_of(cases, naming):
    """{name: cases}, sorted by sequence length."""
    found = {}
    for case in cases:
        found.setdefault(naming(case), []).append(case)
    return {name: sorted(some, key=lambda case: case["seq"]) for name, some in found.items()}


def at_longest(cases):
    """The longest sequence that has a valid case, and the cases at it."""
    lengths = [case["seq"] for case in cases if case.valid] or [case["seq"] for case in cases]
    return max(lengths), [case for case in cases if case["seq"] == max(lengths)]


def tokens_text(seq):
    return f"{count_text(seq)} tokens"
