"""The process of a run on the simulated cluster: the product's own, with the demo's parts."""

from __future__ import annotations

from sparktui.demo.parts import demo_parts
from sparktui.runs.process import leave, main

if __name__ == "__main__":
    leave(main(given=demo_parts()))
