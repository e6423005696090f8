"""Jobs: commands of a project as processes of their own."""
