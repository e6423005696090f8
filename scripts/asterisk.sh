#!/usr/bin/env bash
# Arrange the Asterisk prompts as a data set: bash scripts/asterisk.sh FOLDER, as prepare_dataset.sh --dataset asterisk does.
#
# One professional speaker, 16 kHz, about 540 clips, CC-BY-SA 3.0: copies need attribution and the same licence. The prompts that are
# speech go to FOLDER/prompts with metadata.csv. They are those in the folder ASTERISK_SOUNDS, else of the Debian packages
# asterisk-core-sounds-en and -en-g722, which apt and dpkg download and unpack without root if they are not installed.
set -euo pipefail
label=asterisk
# shellcheck source=scripts/environment.sh
. "$(dirname "$0")/environment.sh" # --help
# shellcheck source=scripts/download.sh
. "$(dirname "$0")/download.sh"
folder=${1:?expected the folder of the data set}
packages=(asterisk-core-sounds-en asterisk-core-sounds-en-g722)
sounds=usr/share/asterisk/sounds/en_US_f_Allison # in the packages, as the next one
transcripts=usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz

has_prompts() { [ -d "$1/$sounds" ] && [ -f "$1/$transcripts" ]; }

# apt FOLDER WORD …: download with the system's lists of packages, or else with new lists in the folder
apt() {
  local options=(-o APT::Sandbox::User=root) # apt's own user cannot write into this folder
  cd "$1"
  apt-get "${options[@]}" download "${@:2}" && return
  mkdir -p lists/partial
  options+=(-o "Dir::State::Lists=$1/lists" -o "Dir::Cache=$1")
  apt-get "${options[@]}" update && apt-get "${options[@]}" download "${@:2}"
}

fetch_packages() {
  local package
  { have apt-get && have dpkg; } || fail "${packages[*]}: not installed, and without apt-get and dpkg they cannot be fetched; name a folder" \
    "with core-sounds-en.txt and the .g722 files (asterisk.org has them as an archive) in ASTERISK_SOUNDS"
  say "fetching ${packages[*]}, 11 MB"
  staging=$folder/packages.unpacking
  trap 'rm -rf "$staging"' EXIT
  rm -rf "$staging" "$folder/packages" # left over from a killed run, or another version with other paths
  mkdir -p "$staging/unpacked"
  (apt "$staging" "${packages[@]}") >"$staging/log" 2>&1 || fail "apt-get: $(tail -n 1 "$staging/log")"
  for package in "$staging"/*.deb; do dpkg -x "$package" "$staging/unpacked"; done
  has_prompts "$staging/unpacked" || fail "${packages[*]}: no $sounds in them; these are not the packages of Debian and Ubuntu"
  mv "$staging/unpacked" "$folder/packages"
}

say "Asterisk core sounds, spoken by Allison Smith, CC-BY-SA 3.0: not part of this project and not shipped with it"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [ -n "${ASTERISK_SOUNDS:-}" ]; then
  sounds=$ASTERISK_SOUNDS transcripts=$ASTERISK_SOUNDS/core-sounds-en.txt
  [ -f "$transcripts" ] || transcripts=$transcripts.gz
  [ -f "$transcripts" ] || fail "ASTERISK_SOUNDS=$sounds: no core-sounds-en.txt or .gz in it, next to the .g722 files"
else
  root=$folder/packages # what was downloaded first, so that an upgrade does not change a data set
  if ! has_prompts "$root" && has_prompts ""; then root=''; fi
  has_prompts "$root" || fetch_packages
  sounds=$root/$sounds transcripts=$root/$transcripts
fi

# Rows are `prompt: text`. Those that begin with a semicolon are comments, and texts in brackets are notes, such as [ascending tones].
mkdir -p "$folder/prompts"
gzip -cdf "$transcripts" | tr -d '\r' | sed -n '/^;/d; /:.*[[(<]/d; s/: */|/p' | while IFS='|' read -r prompt text; do
  if [ -n "$text" ] && [ -f "$sounds/$prompt.g722" ]; then
    name=${prompt//\//_}
    cp -p "$sounds/$prompt.g722" "$folder/prompts/$name.g722"
    echo "$name|$text"
  fi
done >"$folder/prompts/metadata.csv"
[ -s "$folder/prompts/metadata.csv" ] || fail "$sounds: none of the .g722 files that $transcripts lists"
