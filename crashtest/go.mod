module github.com/resilienthttp/resilienthttp/crashtest

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/resilienthttp/resilienthttp v0.1.0
	github.com/resilienthttp/resilienthttp/durable/pgstore v0.1.0
	github.com/resilienthttp/resilienthttp/durable/sqlitestore v0.1.0
	github.com/resilienthttp/resilienthttp/idempotency/pgstore v0.1.0
	github.com/resilienthttp/resilienthttp/idempotency/sqlitestore v0.1.0
	github.com/resilienthttp/resilienthttp/internal/dbtest v0.1.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/resilienthttp/resilienthttp/internal/pgkit v0.1.0 // indirect
	github.com/resilienthttp/resilienthttp/internal/sqlitekit v0.1.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	modernc.org/libc v1.77.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
	modernc.org/sqlite v1.60.1 // indirect
)

replace github.com/resilienthttp/resilienthttp => ../

replace github.com/resilienthttp/resilienthttp/durable/pgstore => ../durable/pgstore

replace github.com/resilienthttp/resilienthttp/durable/sqlitestore => ../durable/sqlitestore

replace github.com/resilienthttp/resilienthttp/idempotency/pgstore => ../idempotency/pgstore

replace github.com/resilienthttp/resilienthttp/idempotency/sqlitestore => ../idempotency/sqlitestore

replace github.com/resilienthttp/resilienthttp/internal/dbtest => ../internal/dbtest

replace github.com/resilienthttp/resilienthttp/internal/pgkit => ../internal/pgkit

replace github.com/resilienthttp/resilienthttp/internal/sqlitekit => ../internal/sqlitekit
