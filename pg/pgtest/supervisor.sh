# Runs a Postgres server on behalf of a test process: sh supervisor.sh <binaries> <directory>
#
# Reads commands from stdin, a pipe whose other end only the test process holds, and answers each with a line "ok" or
# "failed". However that process ends, by kill -9 too, the pipe is then at its end: the server is stopped and the
# directory removed.
bin=$1
dir=$2

# The test process may be gone before it has read an answer. That must not end this script early.
trap '' PIPE

run() {
	case $1 in
	init)
		"$bin/initdb" -D "$dir/data" -U postgres --pwfile="$dir/password" -A scram-sha-256 -E UTF8 --locale=C --no-sync
		;;
	start) # port
		"$bin/pg_ctl" start -D "$dir/data" -l "$dir/log" -w -t 60 -o "-p $2"
		;;
	stop) # as a crash: no checkpoint, the clients are cut off
		"$bin/pg_ctl" stop -D "$dir/data" -m immediate -w -t 60
		;;
	esac </dev/null >>"$dir/log" 2>&1
}

while read -r command port; do
	if run "$command" "$port"; then echo ok; else echo failed; fi
done
run stop
rm -rf "$dir"
