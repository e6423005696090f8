# shellcheck shell=bash
# Functions for the scripts that download, which source this file. They set `label`, the prefix of the lines of `say`.

say() { echo "${label:?}: $*"; }

fail() {
  echo "error: $*" >&2
  exit 1
}

# usage FILE: print the comment at the head of a script.
usage() { sed -n '2,/^set/ s/^# \{0,1\}//p' "$1"; }

have() { command -v "$1" >/dev/null 2>&1; }

size_of() { if [ -e "$1" ]; then wc -c <"$1" | tr -d ' '; else echo 0; fi; }

# check_tools WANTED …: fail where a tool is missing; alternatives are one argument, "curl or wget".
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

# fetch URL FILE [HEADERS]: download the rest of FILE, and write the headers of all responses to HEADERS, if given.
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

# check_fetched STATUS URL FILE SIZE: fail where another try cannot succeed, after a fetch that began at SIZE and ended with STATUS.
check_fetched() {
  # curl's status 33: the server cannot send the rest alone
  [ "$1" -ne 33 ] || fail "$2: cannot go on with a download that was stopped; delete $3 and run again"
  [ "$1" -eq 0 ] || [ "$(size_of "$3")" -gt "$4" ] ||
    fail "$2: nothing comes from there; what has come before stays, and the next run goes on from it"
}

# check_size FILE BYTES [SOURCE]: fail where the file has another size; SOURCE names the origin of the expected one.
check_size() {
  local size
  size=$(size_of "$1")
  [ "$size" = "$2" ] || fail "$1: $size bytes, expected $2${3:+ ($3)}; delete this file and run again"
}

# check_sum FILE SHA256: fail where the file has another checksum.
check_sum() {
  local found
  if have sha256sum; then found=$(sha256sum <"$1"); else found=$(shasum -a 256 <"$1"); fi
  found=${found%% *}
  [ "$found" = "$2" ] || fail "$1: SHA-256 $found, expected $2; delete this file and run again"
}
