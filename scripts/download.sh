# shellcheck shell=bash
# Functions for scripts that download; source this file after setting `label`, the prefix of the lines that `say` prints.

say() { echo "${label:?}: $*"; }

fail() {
  echo "error: $*" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

size_of() { if [ -e "$1" ]; then wc -c <"$1" | tr -d ' '; else echo 0; fi; }

# check_tools WANTED …: fail if a tool is missing; alternatives are one argument, "curl or wget".
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

# fetch URL FILE [HEADERS]: download the rest of FILE; the headers of all responses go to HEADERS, if given.
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

# check_fetched STATUS URL FILE SIZE: after a fetch that started at SIZE bytes and ended with STATUS, fail if a retry is pointless.
check_fetched() {
  # curl's status 33: the server does not support ranges
  [ "$1" -ne 33 ] || fail "$2: the server cannot resume the interrupted download; delete $3 and run again"
  [ "$1" -eq 0 ] || [ "$(size_of "$3")" -gt "$4" ] ||
    fail "$2: the server sent nothing; what is downloaded so far is kept, and the next run continues from there"
}

# check_size FILE BYTES [SOURCE]: fail if the file has another size; SOURCE says where the expected size comes from.
check_size() {
  local size
  size=$(size_of "$1")
  [ "$size" = "$2" ] || fail "$1: $size bytes, expected $2${3:+ ($3)}; delete this file and run again"
}

# check_sum FILE SHA256: fail if the file has another checksum.
check_sum() {
  local found
  if have sha256sum; then found=$(sha256sum <"$1"); else found=$(shasum -a 256 <"$1"); fi
  found=${found%% *}
  [ "$found" = "$2" ] || fail "$1: SHA-256 $found, expected $2; delete this file and run again"
}
