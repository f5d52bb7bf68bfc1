"""The colours of the SVG, light and dark: each legible on its panel without the other."""

COLOURS = ("#2f6db5", "#0f8577", "#7a55c7", "#b5467f", "#a8660f", "#4f7f26")
"""The members' in turn: white numbers are legible on each, and each on either panel."""

STYLE = """
text { font-family: system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif;
  font-size: 13px; fill: #1f2328 }
.panel { fill: #ffffff; stroke: #d0d7de }
.title { font-size: 22px; font-weight: 700 }
.big { font-size: 20px; font-weight: 700 }
.name { font-size: 15px; font-weight: 700 }
.strong { font-weight: 700 }
.faint { fill: #59636e }
.number { fill: #ffffff; font-weight: 700 }
.track { fill: #e3e8ee }
.compute { fill: #2f6db5 }
.slowest { fill: #b9501a }
.memory { fill: #0f8577 }
.over { fill: #c5303a }
.direct { stroke: #59636e; fill: none }
.relayed { stroke: #b9501a; fill: none; stroke-dasharray: 4 3 }
.tip { fill: #59636e }
.rule { stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .panel { fill: #151a21; stroke: #3d444d }
  .faint { fill: #9aa5b1 }
  .number { fill: #ffffff }
  .track { fill: #2d343d }
  .compute { fill: #5294dd }
  .slowest { fill: #ea8347 }
  .memory { fill: #2bab9a }
  .over { fill: #f0616a }
  .direct { stroke: #9aa5b1 }
  .relayed { stroke: #ea8347 }
  .tip { fill: #9aa5b1 }
  .rule { stroke: #3d444d }
}
"""
