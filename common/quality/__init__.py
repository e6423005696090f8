"""Quality: the measures of synthesised speech that a report is made of, and how sure each of them is."""
