"""Does a scale that follows the statistics of gradients overflow less often than one that backs off?"""
