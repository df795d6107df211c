# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts beside it: where the tree is, and how they talk.

# shellcheck disable=SC2034  # used by who sources this
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
if [[ ! -t 2 || -n ${NO_COLOR:-} ]]; then
    say() { printf '==> %s\n' "$*" >&2; }
fi

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

wrong_usage() {
    printf '%s: %s (see --help)\n' "$(basename "$0")" "$*" >&2
    exit 2
}

# The comment block under the SPDX line of a script is its --help.
show_help() {
    sed -n '3,/^[^#]/{/^#/!d;s/^# \{0,1\}//;p}' "$0"
}

# took START: "12 s" or "2 min 5 s" since START, a value of SECONDS.
took() {
    local seconds=$((SECONDS - $1))
    if ((seconds < 60)); then echo "$seconds s"; else echo "$((seconds / 60)) min $((seconds % 60)) s"; fi
}

# quietly LABEL COMMAND...: runs it with its talk in a file; the tail is shown only on failure.
quietly() {
    local label=$1 log
    shift
    log=$(mktemp)
    if "$@" >"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    printf '%s failed; the last lines it said:\n' "$label" >&2
    tail -n 40 "$log" >&2
    rm -f "$log"
    return 1
}
