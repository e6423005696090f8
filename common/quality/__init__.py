"""Quality: the measures of synthesised speech that a report is made of, and how sure each of them is."""

MEASURED = ("asr", "mos", "likeness")  # measures that can be left out: each needs packages or time
