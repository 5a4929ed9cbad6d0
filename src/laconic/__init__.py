from laconic.compressors import *
