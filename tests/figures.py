"""Draw figures quickly in tests that do not inspect them."""

from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.layout_engine import ConstrainedLayoutEngine


def make_coarse(setattr=setattr):
    """Write figures with few dots and without a layout, because a layout makes matplotlib draw each figure twice."""
    print_figure = FigureCanvasBase.print_figure

    def print_once(canvas, *arguments, **options):
        canvas.figure._layout_engine = None
        return print_figure(canvas, *arguments, **{**options, "dpi": 20, "bbox_inches": None})

    setattr(FigureCanvasBase, "print_figure", print_once)
    setattr(ConstrainedLayoutEngine, "execute", lambda engine, figure: None)
