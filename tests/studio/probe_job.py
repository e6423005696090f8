"""A command for tests of runs: it prints a line, then ends, fails, or waits for a signal on which it saves."""

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import os
import sys
import time

from common.errors import DataError, exit_on_user_error
from common.run.interrupt import StopRequest

VARIABLE = "CUDA_VISIBLE_DEVICES"


def main() -> int:
    (kind,) = sys.argv[1:]
    StopRequest.ECHO = 0.0  # a second signal counts at once
    with StopRequest() as stop:
        print("step 1", flush=True)
        deadline = time.monotonic() + 120
        while kind == "wait" and not stop.is_requested and time.monotonic() < deadline:
            time.sleep(0.02)
        if kind == "wait":
            time.sleep(1.0)  # a second signal would come now
            print("saved", flush=True)
            return stop.exit_code
    if kind == "fail":
        print("working\nerror: of a clip, left out")
        raise DataError("clips.tsv:3: bad\nclips.tsv:4: bad")
    if kind == "crash":
        raise RuntimeError("a fault")
    if kind == "end":
        print("10 %\r100 %\n\x1b[31mred\nthe end")  # a bar, and a control character
    if kind == "device":
        print(os.environ.get(VARIABLE))
    return 0


if __name__ == "__main__":
    with exit_on_user_error():
        sys.exit(main())
