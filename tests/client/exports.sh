#!/bin/sh
# exports.sh NM LIBRARY HEADER: the library's dynamic symbols are the header's functions, all of them
# and no other; and it links no event loop.
set -eu
exported=$("$1" -D --defined-only "$2" | awk '$2 ~ /[TDBRW]/ { print $3 }' | sort)
declared=$(sed -n 's/^ZEROD_API .*[ *]\(zerod_[a-z_]*\)(.*/\1/p' "$3" | sort)
if [ "$exported" != "$declared" ]; then
    echo "exported:" $exported
    echo "declared:" $declared
    exit 1
fi
if ldd "$2" | grep -q libuv; then
    echo "libzerod links libuv"
    exit 1
fi
echo "$(echo "$exported" | wc -l) functions"
