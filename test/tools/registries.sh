# Debian: ca-certificates nodejs npm golang-go maven default-jdk-headless cargo libpq-dev
# The programs of docs/applications.md whose libraries are not Debian's but come from the
# registries of their languages.  Each runs twice: the second run must leave what the
# first has made.  A registry that cannot be reached is no failure.

npm_packages="pg@8.23.1 knex@3.3.0 sequelize@6.37.8 typeorm@1.1.1 drizzle-orm@0.45.4 drizzle-kit@0.31.11"
go_packages="github.com/jackc/pgx/v5@v5.8.0 gorm.io/gorm@v1.31.2 gorm.io/driver/postgres@v1.6.0"
maven_packages="org.flywaydb:flyway-database-postgresql:13.12.2 org.hibernate.orm:hibernate-core:7.4.16.Final
	org.postgresql:postgresql:42.7.14"
crates='sqlx = { version = "=0.8.6", default-features = false, features = ["postgres", "runtime-tokio", "migrate", "macros"] }
tokio = { version = "=1.54.1", features = ["macros", "rt-multi-thread"] }
diesel = { version = "=2.2.12", features = ["postgres"] }
diesel_migrations = "=2.2.0"'

unreachable='EHOSTUNREACH|ENETUNREACH|EAI_AGAIN|ENOTFOUND|ECONN|ETIMEDOUT|dial tcp|transfer failed for|not resolve host|Connection refused|timed out'

try_registries()
{
	if [ "$major" -lt 17 ]; then
		echo "ok registries: # SKIP the Node.js, Go and Rust of this Debian are too old for these libraries"
		return
	fi
	. "$here/applications.sh"
	document=$here/../../docs/applications.md
	make_server applied "" || return 1
	export HOME=$scratch PATH=$bindir:$PATH GOFLAGS=-modcacherw CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS=fallback
	for language in node go java rust; do
		mkdir "$scratch/$language" && cd "$scratch/$language" && "registry_$language"
	done
	cd "$scratch" && stop_server applied
}

# fetch LANGUAGE COMMAND...: get packages
fetch()
{
	! "${@:2}" >"$scratch/output" 2>&1 || return 0
	if grep -qE "$unreachable" "$scratch/output"; then
		echo "ok registries: $1 # SKIP its registry cannot be reached"
	else
		say_bad "$1: packages" "$scratch/output"
	fi
	return 1
}

# fresh NAME: a database, in which small tables are not read as a whole
fresh()
{
	sql -d postgres -c "CREATE DATABASE \"$1\"" -c "ALTER DATABASE \"$1\" SET enable_seqscan = off" \
		-c "ALTER DATABASE \"$1\" SET enable_bitmapscan = off" || return 1
	export PGDATABASE=$1
	sql -c "CREATE EXTENSION pmhash" || return 1
	export DATABASE_URL="postgresql://postgres@127.0.0.1:$PGPORT/$1"
	export JDBC_URL="jdbc:postgresql://127.0.0.1:$PGPORT/$1?user=postgres"
}

# files: which indexes there are, and that none has been built anew
files()
{
	value "SELECT relname, relfilenode FROM pg_class WHERE relkind = 'i' AND oid >= 16384 ORDER BY 1"
}

# recipe SECTION LANGUAGE FILE COMMAND TABLE INDEX...: the section's block, twice
recipe()
{
	local section=$1 file=$3 command=$4 before

	mkdir -p "$(dirname "$file")" && program "$section" "$2" 1 >"$file" && fresh "$section" || return 1
	shift 4
	check "$section" bash -c "$command" || return 1
	made "$@"
	is_used "$2" "$1 WHERE host = 'a'"
	before=$(files)
	check "$section: again" bash -c "$command"
	is "$section: the indexes stay" "$before" "$(files)"
}

# plans SECTION INDEX...: what the recipe's last run has printed
plans()
{
	is "$1: parameters" "${*:2}" "$(sed -n 's/^Index Scan using \([a-z_]*\) .*/\1/p' "$scratch/output" | xargs)"
}

# warned NAME COMMAND: the page warns that this leaves a btree
warned()
{
	check "$1" bash -c "$2"
	is "$1: a btree" btree "$(value "SELECT amname FROM pg_class c JOIN pg_am a ON c.relam = a.oid WHERE relname ~ '^[a-z]+_host$'")"
}

registry_node()
{
	local knex='npx knex --client pg --connection $DATABASE_URL --migrations-directory migrations'
	local kit='--dialect=postgresql --schema=drizzle.js'

	fetch Node.js npm install --no-audit --no-fund --ignore-scripts --fetch-retry-mintimeout=1000 --fetch-retries=1 $npm_packages || return
	recipe node-postgres js pg.js 'node pg.js' page page_host page_seen
	plans node-postgres page_host page_host page_seen
	recipe Knex js migrations/1_page.js "$knex migrate:latest" page page_host
	sed -i "s/'pmhash')/{ indexType: 'pmhash' })/" migrations/1_page.js
	warned "Knex, indexType" "$knex migrate:rollback && $knex migrate:latest"
	sed -i "s/indexType/storageEngineIndexType/" migrations/1_page.js
	check "Knex, storageEngineIndexType" bash -c "$knex migrate:rollback && $knex migrate:latest"
	made page page_host
	recipe Sequelize js sequelize.js 'node sequelize.js' pages page_host
	recipe TypeORM js typeorm.js 'npx typeorm schema:sync -d typeorm.js && npx typeorm migration:run -d typeorm.js' page page_host
	sed 's/, synchronize: false//' typeorm.js >btree.js
	warned "TypeORM, synchronize" "npx typeorm schema:sync -d btree.js"
	recipe Drizzle js drizzle.js "npx drizzle-kit push $kit --url=\$DATABASE_URL" page page_host
	check "Drizzle: generate" npx drizzle-kit generate $kit
	like "Drizzle: a migration" "USING pmhash" "$(cat drizzle/*.sql)"
}

registry_go()
{
	fetch Go bash -c "go mod init shop && go get $go_packages" || return
	recipe pgx go pgx/main.go 'go run ./pgx' page page_host page_seen
	plans pgx page_host page_host page_seen
	recipe gorm go gorm/main.go 'go run ./gorm' pages page_host
}

registry_java()
{
	{
		echo "<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>"
		printf '%s\n' $maven_packages | sed -E 's,(.*):(.*):(.*),<dependency><groupId>\1</groupId><artifactId>\2</artifactId><version>\3</version></dependency>,'
		echo "</dependencies></project>"
	} >pom.xml
	fetch Java mvn -B dependency:copy-dependencies -DoutputDirectory=lib || return
	mkdir migrations
	program "Migrations in SQL" sql 1 >migrations/V1__parcel.sql
	program "Migrations in SQL" sql 2 >migrations/V2__host.sql
	recipe Flyway java Migrate.java "java -cp 'lib/*' Migrate.java \$JDBC_URL" parcel parcel_host
	fresh lock
	sed -i /setTransactionalLock/d Migrate.java
	timeout 20 java -cp 'lib/*' Migrate.java "$JDBC_URL" >"$scratch/output" 2>&1
	is "Flyway waits for its lock" 124 $?
	recipe Hibernate java Parcels.java "psql -qc 'CREATE TABLE IF NOT EXISTS parcel (id bigint PRIMARY KEY, host text)' \
		-c 'CREATE INDEX IF NOT EXISTS parcel_host ON parcel USING pmhash (host)' &&
		javac -cp 'lib/*' -d . Parcels.java && java -cp '.:lib/*' Parcels \$JDBC_URL" parcel parcel_host
	warned "Hibernate, no index" "psql -qc 'DROP INDEX parcel_host' && java -cp '.:lib/*' Parcels \$JDBC_URL"
}

registry_rust()
{
	printf '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n[profile.dev]\ndebug = false\n[dependencies]\n%s\n' "$crates" >Cargo.toml
	mkdir -p src/bin migrations diesel/1_parcel diesel/2_host
	echo 'fn main() {}' >src/main.rs
	fetch Rust cargo fetch || return
	program "Migrations in SQL" sql 1 | tee migrations/1_parcel.sql >diesel/1_parcel/up.sql
	program "Migrations in SQL" sql 2 | tee migrations/2_host.sql >diesel/2_host/up.sql
	echo "run_in_transaction = false" >diesel/2_host/metadata.toml
	recipe sqlx rust src/bin/sqlx.rs 'cargo run --bin sqlx' parcel parcel_host
	plans sqlx parcel_host parcel_host
	recipe Diesel rust src/bin/diesel.rs 'cargo run --bin diesel' parcel parcel_host
}
