"""Looks that pictures of results share: who has which colour (plot.py too), marker and dashes."""

# Okabe and Ito: told apart with every common colour blindness. Markers and dashes do the same in grey print.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999"]

# Kinds of memory and of traffic, in the order of the file.
MEMORY_KINDS = ["weights", "gradients", "optimiser", "activations", "buffers"]
TRAFFIC_KINDS = ["weights", "gradients", "activations", "ends"]

# Parts of a step in the order of the stack: column of the summary, name, class of the page's style sheet.
PARTS = [
    ("compute_s", "computing", "compute"),
    ("exposed_weights_s", "waiting for weights", "weights"),
    ("exposed_gradients_s", "waiting for gradients", "gradients"),
    ("exposed_activations_s", "waiting for activations", "activations"),
    ("exposed_ends_s", "waiting for embedding and head", "ends"),
    ("idle_s", "idle", "idle"),
]

DASHES = ["", "6 3", "2 2", "8 3 2 3"]
MARKERS = ["circle", "square", "up", "diamond", "down", "plus", "cross", "ring"]


class Styles:
    """One look for each name, in the order of their first appearance, the same on the whole page."""

    def __init__(self, names):
        self.numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}

    def colour(self, name):
        return self.numbers[name] % len(COLOURS)

    def marker(self, name):
        again, number = divmod(self.numbers[name], len(COLOURS))
        return MARKERS[(number + 3 * again) % len(MARKERS)]

    def dashes(self, name):
        number = self.numbers[name]
        return DASHES[(number + number // len(COLOURS)) % len(DASHES)]
