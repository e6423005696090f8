#!/usr/bin/env bash
# Train Tacotron 2 on every GPU, or on the CPU: bash scripts/train_tacotron2.sh [train.py flags]. Checkpoints and logs go to output/.
# Mixed precision, on the mels of scripts/prepare_mels.sh. Flags at the end take precedence: --no-amp trains in float32;
# --no-load-mel-from-disk with other --training-files and --validation-files reads audio. Batch size and annealing follow the precision.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/environment.sh
. scripts/environment.sh
project_python
exec "$python" -m multiproc train.py -m Tacotron2 -o output --amp --cudnn-enabled --load-mel-from-disk \
  --training-files filelists/ljs_mel_text_train_filelist.txt --validation-files filelists/ljs_mel_text_val_filelist.txt "$@"
