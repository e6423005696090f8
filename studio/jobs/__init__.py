"""Jobs: commands of a project that run as processes of their own."""
