"""A plugin that greets whoever imports it, in three ways."""

import os
import subprocess
import sys

INTERFACES = ()

print("hello from Python")
os.write(1, b"hello from C\n")
subprocess.run([sys.executable, "-c", "print('hello from a child')"], check=True)
