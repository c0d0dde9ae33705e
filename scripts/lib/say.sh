# SPDX-License-Identifier: BSD-3-Clause
# Messages of the scripts: progress on standard error, and one clear sentence when something fails.
say() { printf 'minitaw: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
