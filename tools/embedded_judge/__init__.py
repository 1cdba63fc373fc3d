"""Trains and measures the tiny judge that ships with judgekit; see README.md."""
