# SPDX-License-Identifier: BSD-3-Clause
"""Reads the result files of miniTaw: compare, report, plot, timeline, trend and run rules
(docs/results.md)."""

import os

os.environ["HDF5_PLUGIN_PRELOAD"] = "::"  # HDF5 loads no foreign code, whatever a file asks for
