"""Quality: measures of synthesised speech, and reports of them with confidence intervals."""

MEASURED = ("asr", "mos", "likeness")  # measures that can be left out: each needs extra packages or time
