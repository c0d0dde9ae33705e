# SPDX-License-Identifier: BSD-3-Clause
"""Reads the result files of miniTaw: compare, report, plot, timeline, export, bundle and run rules
(docs/results.md)."""
