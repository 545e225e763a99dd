"""Convert a folder of images into another format: once, with every sample's checksum compared afterwards.

usage: convert_storage.py SOURCE DEST --format lmdb [--source-format files] [--image-size 256] [--workers N]

An interrupted conversion continues when started again; DEST appears when it is complete.
"""

import argparse
from pathlib import Path

from stallpoint.errors import program
from stallpoint.storage import Storage
from stallpoint.storage.convert import convert


def arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder with the images")
    parser.add_argument("target", type=Path, metavar="dest", help="folder to make")
    parser.add_argument("--format", required=True, help="format of the new folder (docs/extending/storage.md)")
    parser.add_argument("--source-format", default="files", help="format of the source; files unless given")
    parser.add_argument("--image-size", type=int, help="rows and columns of images that are stored as pixels; 256")
    parser.add_argument("--workers", type=int, help="threads; one for each core unless given")
    return parser.parse_args()


with program():
    asked = arguments()
    source = Storage(str(asked.source), asked.source, asked.source_format)
    target = Storage(str(asked.target), asked.target, asked.format)
    said = convert(source, target, image_size=asked.image_size, workers=asked.workers)
    print(f"{asked.target}: {said['samples']} samples of format {asked.format}, all equal; SHA-256 {said['sha256']}")
