"""Rollouts as data sets and trainers hold them."""
