# SPDX-License-Identifier: BSD-3-Clause
"""What the settings of a case mean, what a reader calls them, and which cases they put together.
Each setting of a file is in one of the lists below."""

from .numbers import count_text, plural

# rates of others do not compare
MODEL = ["layers", "hidden", "heads", "head_dim", "kv_heads", "vocab", "tied", "ffn"]
WORK = ["schedule", "ranks", "groups", "replicas", "context", "seq", "data", "data_sum"]
BATCH = ["micro_batches", "micro_batch"]
# How the same is computed: cases that differ in these can be compared if the user allows it.
VARIANT = ["dtype", "grad_dtype", "context_parts", "context_grad_dtype", "recompute", "attention",
           "transport", "seed", "learning_rate", "clip_norm"]  # fmt: skip
EFFORT = ["steps", "warmup", "repeats"]  # how well a case is measured
DERIVED = ["identity", "group_count", "parameters"]  # follow from the others

# Words in front of a value, in the order in which settings tell panels of a page apart.
TOLD = {
    "ranks": "rank",
    "groups": "groups",
    "replicas": "replica",
    "context": "context",
    "hidden": "hidden",
    "layers": "layer",
    "dtype": "",
    "recompute": "recompute",
    "micro_batches": "M =",
    "micro_batch": "B =",
    "vocab": "vocabulary",
    "tied": "tied =",
    "heads": "head",
    "head_dim": "head width",
    "kv_heads": "key/value head",
    "ffn": "feed-forward width",
    "data": "tokens",
    "attention": "attention",
    "transport": "transport",
    "seed": "seed",
    "learning_rate": "learning rate",
}
COUNTED = ["ranks", "layers", "heads", "kv_heads", "replicas"]  # whose word stands after the value


def setting_text(name, value):
    """ "4 ranks", "groups 2+2", "M = 16"."""
    if name in COUNTED:
        return plural(value, TOLD[name])
    return f"{TOLD[name]} {value}".strip()


def telling(cases, names=tuple(TOLD)):
    """The settings that tell the rows of a table apart, without those that follow from others."""
    chosen, parts = [], 1
    for name in names:
        count = len(cases[[*chosen, name]].drop_duplicates())
        if count > parts:
            chosen, parts = [*chosen, name], count
    return chosen


def shared_settings(cases):
    """Texts of the settings that all rows have in common."""
    found = []
    for name in TOLD:
        values = cases[name].unique().tolist()
        is_usual = set(values) <= {"", "auto", "false"} or (name == "replicas" and values == [1])
        if len(values) == 1 and not is_usual:
            found.append(setting_text(name, *values))
    if cases.seq.nunique() == 1:
        found.append(f"{count_text(int(cases.seq.iloc[0]))} tokens in a sequence")
    return found


def panels(cases):
    """[(title, rows)]: cases that are alike but for schedule and sequence length. The title says
    what tells a panel from the others."""
    names = telling(cases)
    parts = cases.groupby(names, sort=False) if names else [((), cases)]
    return [(", ".join(map(setting_text, names, key)), some) for key, some in parts]
