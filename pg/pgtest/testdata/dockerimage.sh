#!/bin/sh
# Makes a Docker image of the PostgreSQL that is installed on this Debian or Ubuntu machine, where no registry has one:
#
#	testdata/dockerimage.sh idem-test-postgres:local
#	IDEM_TEST_POSTGRES_IMAGE=idem-test-postgres:local TESTCONTAINERS_RYUK_DISABLED=true go test .
#
# (On a machine that looks like a container, by /.dockerenv, but runs its own engine, testcontainers also needs
# TESTCONTAINERS_HOST_OVERRIDE=localhost.)
#
# It behaves like the official image as far as pgtest needs that: POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB, the
# arguments of postgres as its command, and a first start that is not reachable from outside.
set -eu

image=${1:-idem-test-postgres:local}
version=$(ls /usr/lib/postgresql | sort -n | tail -n 1)
lib=/usr/lib/postgresql/$version

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# The last four are for testcontainers, which looks for the listening port inside of the container.
programs="$lib/bin/initdb $lib/bin/pg_ctl $lib/bin/postgres $lib/bin/psql
	$(for name in sh env cat awk grep wc; do command -v "$name"; done)"
# Without JIT, which would bring all of LLVM.
modules=$(find "$lib/lib" -name '*.so' ! -name 'llvmjit*')
libraries=$(ldd $programs $modules | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// && $1 !~ /:$/ { print $1 }' | sort -u)
tar -C / -ch $(printf '%s\n' $programs $modules $libraries "/usr/share/postgresql/$version" /usr/share/zoneinfo |
	sed 's,^/,,') | tar -C "$root" -x

mkdir -p "$root/etc" "$root/bin" "$root/tmp" "$root/var/lib/postgresql" "$root/var/run/postgresql"
chmod 1777 "$root/tmp" "$root/var/lib/postgresql" "$root/var/run/postgresql"
[ -e "$root/bin/sh" ] || cp -L /bin/sh "$root/bin/sh"
echo 'postgres:x:999:999::/var/lib/postgresql:/bin/sh' >"$root/etc/passwd"
cat >"$root/entrypoint.sh" <<'END'
#!/bin/sh
set -eu
: "${POSTGRES_PASSWORD:?}" "${POSTGRES_USER:=postgres}" "${POSTGRES_DB:=$POSTGRES_USER}"
export PGDATA=/var/lib/postgresql/data

[ ! -e "$PGDATA/PG_VERSION" ] || exec "$@"
echo "$POSTGRES_PASSWORD" >/tmp/password
initdb -U "$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 -E UTF8 --locale=C --no-sync
echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"

pg_ctl start -w -o "-c listen_addresses=''"
[ "$POSTGRES_DB" = postgres ] || psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d postgres -c "create database \"$POSTGRES_DB\""
pg_ctl stop -w -m fast
exec "$@"
END
chmod 755 "$root/entrypoint.sh" "$root"

tar -C "$root" -c --owner=0 --group=0 --numeric-owner . | docker import \
	--change 'USER 999:999' \
	--change "ENV PATH=$lib/bin:/usr/bin:/bin" \
	--change 'EXPOSE 5432' \
	--change 'ENTRYPOINT ["/entrypoint.sh"]' \
	--change 'CMD ["postgres"]' \
	- "$image"
