"""`make bench`: SIE beside what a user would pick instead, in one run on one machine; nothing here is a test of speed.

Run it as `python -m tests.bench --help`.
"""
