"""Kernels: products and recurrences for the fast ways of several models."""
