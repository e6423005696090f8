"""Quality: measures of synthesised speech, and reports of them with confidence intervals."""
