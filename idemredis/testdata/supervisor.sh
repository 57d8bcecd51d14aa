# Runs a server on behalf of a test process: sh supervisor.sh <directory> <program> <argument>...
#
# Stdin is a pipe whose other end only the test process holds. When it is closed, by kill -9 of that process too, the
# server is killed and the directory removed.
dir=$1
shift
"$@" </dev/null >"$dir/log" 2>&1 &
read -r _
kill -9 $!
rm -rf "$dir"
