# shellcheck shell=bash
# Sourced by the scripts that download: functions only. `label`, which those scripts set, is what the lines of `say` begin with.

say() { echo "${label:?}: $*"; }

fail() {
  echo "error: $*" >&2
  exit 1
}

# usage FILE: the comment that a script begins with.
usage() { sed -n '2,/^set/ s/^# \{0,1\}//p' "$1"; }

have() { command -v "$1" >/dev/null 2>&1; }

size_of() { if [ -e "$1" ]; then wc -c <"$1" | tr -d ' '; else echo 0; fi; }

# check_tools WANTED …: fails where one is missing; where any of several will do, that is one argument, "curl or wget".
check_tools() {
  local wanted tool missing=()
  for wanted in "$@"; do
    for tool in ${wanted// or / }; do
      if have "$tool"; then continue 2; fi
    done
    missing+=("$wanted")
  done
  [ ${#missing[@]} -eq 0 ] || fail "not installed: $(printf '%s, ' "${missing[@]}" | sed 's/, $//'); install them and run again"
}

# fetch URL FILE [HEADERS]: get the rest of FILE; the headers of all answers end up in HEADERS, where it is given.
fetch() {
  local headers=${3:-} options=() status=0
  if have curl; then
    options=(--silent --show-error)
    [ -t 2 ] && options=(--progress-bar)
    [ -z "$headers" ] || options+=(--dump-header "$headers")
    curl "${options[@]}" --fail --location --retry 5 --speed-limit 1000 --speed-time 60 --continue-at - --output "$2" "$1" || status=$?
    return "$status"
  fi
  options=(--no-verbose --tries=5 --timeout=60 --continue --output-document="$2")
  if [ -z "$headers" ]; then
    wget "${options[@]}" "$1" || status=$?
  else
    wget "${options[@]}" --server-response "$1" 2>"$headers" || status=$?
    [ "$status" -eq 0 ] || grep -v '^  ' "$headers" >&2 || true # its messages; headers are indented
  fi
  return "$status"
}

# check_fetched STATUS URL FILE SIZE: fails where trying again is no use, after a fetch that began at SIZE and ended with STATUS.
check_fetched() {
  # 33 is curl's word for a server that cannot send the rest alone
  [ "$1" -ne 33 ] || fail "$2: cannot go on with a download that was stopped; delete $3 and run again"
  [ "$1" -eq 0 ] || [ "$(size_of "$3")" -gt "$4" ] ||
    fail "$2: nothing comes from there; what has come before stays, and the next run goes on from it"
}

# check_size FILE BYTES [WHOSE]: fails where the file has another size; WHOSE tells who expects it.
check_size() {
  local size
  size=$(size_of "$1")
  [ "$size" = "$2" ] || fail "$1: $size bytes, expected $2${3:+ ($3)}; delete this file and run again"
}

# check_sum FILE SHA256
check_sum() {
  local found
  if have sha256sum; then found=$(sha256sum <"$1"); else found=$(shasum -a 256 <"$1"); fi
  found=${found%% *}
  [ "$found" = "$2" ] || fail "$1: SHA-256 $found, expected $2; delete this file and run again"
}
