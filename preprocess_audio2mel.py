"""Compute mels, under the published name of common.data.mels: python preprocess_audio2mel.py --wav-files LIST --mel-files LIST."""

import runpy

if __name__ == "__main__":
    runpy.run_module("common.data.mels", run_name="__main__", alter_sys=True)
