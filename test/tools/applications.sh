# Debian: python3-psycopg python3-psycopg2 python3-asyncpg python3-sqlalchemy alembic python3-django libpostgresql-jdbc-java default-jdk-headless
# The programs of docs/applications.md in Python and Java, as they stand there, and which
# indexes they have made.  PYTHON names another Python than Debian's, with newer libraries.

try_applications()
{
	make_server applied "" && make_database shop || return 1
	document=$here/../../docs/applications.md
	python=${PYTHON:-/usr/bin/python3}
	# libpq, and those that do not use it
	export PGPASSWORD=
	applied_psycopg
	applied_asyncpg
	applied_sqlalchemy
	applied_alembic
	applied_django
	applied_jdbc
	stop_server applied
}

# program SECTION LANGUAGE N: the n-th block of a language in a section
program()
{
	awk -v section="$1" -v language="$2" -v n="$3" '
		/^##+ / { inside = ($0 ~ "^##+ " section "$") }
		/^```/ { if (printing) exit; if (inside && $0 == "```" language && --n == 0) { printing = 1; next } }
		printing { print }' "$document"
}

# made TABLE INDEXES...: these are pmhash indexes of the table, they serve, and there are no others
made()
{
	local table=$1

	shift
	is "$table: its indexes" "$*" "$(value "SELECT string_agg(\"index\", ' ' ORDER BY \"index\") FROM pmhash.indexes
		WHERE \"table\" = '$table' AND state = 'valid'")"
}

# is_used INDEX CONDITION: a plan of the table's with this condition
is_used()
{
	like "$1 is used" "$1" "$(value "SET enable_seqscan = off; EXPLAIN (COSTS OFF) SELECT * FROM $2")"
}

# python_version MODULE
python_version()
{
	echo "# $1 $("$python" -c "import $1; print($1.__version__)")"
}

applied_psycopg()
{
	python_version psycopg
	program "psycopg 3" python 1 >"$scratch/page.py"
	check "psycopg" "$python" "$scratch/page.py"
	made page page_seen page_url_excl
	is_used page_seen "page WHERE seen = now()"
	cat >"$scratch/datetimes.py" <<-'PY'
		import datetime, psycopg
		with psycopg.connect() as c:
		    c.execute("SET enable_seqscan = off")
		    for value in datetime.datetime.now(datetime.timezone.utc), datetime.datetime.now():
		        plan = c.execute("EXPLAIN SELECT * FROM page WHERE seen = %s", (value,)).fetchall()
		        print("page_seen" in str(plan), end=" ")
	PY
	is "psycopg: an aware datetime uses the index, and so does a naive one" "True True " "$("$python" "$scratch/datetimes.py" 2>&1)"
}

applied_asyncpg()
{
	python_version asyncpg
	program asyncpg python 1 >"$scratch/visit.py"
	check "asyncpg" "$python" "$scratch/visit.py"
	made visit visit_page
	is_used visit_page "visit WHERE page = 1"
}

applied_sqlalchemy()
{
	local driver

	python_version sqlalchemy
	driver=$("$python" -c 'import sqlalchemy; print("psycopg2" if sqlalchemy.__version__ < "2" else "psycopg")')
	{
		echo "DATABASE_URL = 'postgresql+$driver://postgres@127.0.0.1:$PGPORT/shop'"
		program SQLAlchemy python 1
	} >"$scratch/model.py"
	check "SQLAlchemy" "$python" "$scratch/model.py"
	made article article_digest article_host article_url
	like "SQLAlchemy: the storage parameter" "wal=off" "$(value "SELECT reloptions FROM pg_class WHERE relname = 'article_digest'")"
	is_used article_host "article WHERE host = 'a'"
}

# The block is what a file of migrations has; alembic's own command runs nothing else of it.
applied_alembic()
{
	local driver

	python_version alembic
	driver=$("$python" -c 'import sqlalchemy; print("psycopg2" if sqlalchemy.__version__ < "2" else "psycopg")')
	sql -c "CREATE TABLE story (url text, host text)"
	program Alembic python 1 >"$scratch/revision.py"
	cat >"$scratch/migrate.py" <<-PY
		import sys
		from alembic.migration import MigrationContext
		from alembic.operations import Operations
		from sqlalchemy import create_engine
		sys.path.insert(0, "$scratch")
		import revision
		engine = create_engine("postgresql+$driver://postgres@127.0.0.1:$PGPORT/shop")
		with engine.connect() as connection:
		    context = MigrationContext.configure(connection)
		    with Operations.context(context), context.begin_transaction():
		        getattr(revision, sys.argv[1])()
	PY
	check "Alembic: upgrade" "$python" "$scratch/migrate.py" upgrade
	made story story_host story_url
	is_used story_host "story WHERE host = 'a'"
	check "Alembic: downgrade" "$python" "$scratch/migrate.py" downgrade
	is "Alembic: the indexes are gone" 0 "$(value "SELECT count(*) FROM pmhash.indexes WHERE \"table\" = 'story'")"
}

applied_django()
{
	mkdir -p "$scratch/site/shop/migrations" && cd "$scratch/site" || return 1
	echo "# django $("$python" -c 'import django; print(django.get_version())')"
	touch shop/__init__.py shop/migrations/__init__.py
	program Django python 1 >shop/models.py
	cat >settings.py <<-PY
		SECRET_KEY = "x"
		INSTALLED_APPS = ["django.contrib.postgres", "shop"]
		DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
		USE_TZ = True
		DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "shop", "USER": "postgres",
			"HOST": "127.0.0.1", "PORT": "$PGPORT"}}
	PY
	export DJANGO_SETTINGS_MODULE=settings PYTHONPATH=$scratch/site
	check "Django: makemigrations" "$python" -m django makemigrations shop
	program Django python 2 >shop/migrations/0002_post_url.py
	check "Django: migrate" "$python" -m django migrate
	check "Django: models and migrations agree" "$python" -m django makemigrations --check --dry-run
	made shop_post post_digest post_host post_url
	like "Django: the storage parameter" "wal=off" "$(value "SELECT reloptions FROM pg_class WHERE relname = 'post_digest'")"
	is_used post_host "shop_post WHERE host = 'a'"
	check "Django: migrate back" "$python" -m django migrate shop zero
	unset DJANGO_SETTINGS_MODULE PYTHONPATH
	cd "$scratch" || return 1
}

applied_jdbc()
{
	program JDBC java 1 >"$scratch/Orders.java"
	is "JDBC: parameters" "orders_id orders_id orders_at orders_at orders_at" "$(java -Xshare:auto -XX:TieredStopAtLevel=1 \
		-cp /usr/share/java/postgresql.jar "$scratch/Orders.java" \
		"jdbc:postgresql://127.0.0.1:$PGPORT/shop?user=postgres" 2>&1 | grep -o 'orders_[a-z]*\|.*Exception.*' | tr '\n' ' ' | sed 's/ $//')"
	made orders orders_at orders_id
}
