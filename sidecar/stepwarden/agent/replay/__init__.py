"""
A step run again: what its module calls began from is kept until its update, and used when it was bad.

Nothing here calls a collective, and all that a replay touches is as before afterwards, to the bit.
"""
