"""The studio's page: Gradio in its tabs and frame; below them, plain functions that need no packages of the page."""
