module github.com/resilienthttp/resilienthttp/benchmarks/durable/sqlite

go 1.26.0

require (
	github.com/resilienthttp/resilienthttp v0.1.0
	github.com/resilienthttp/resilienthttp/durable/sqlitestore v0.1.0
	github.com/riverqueue/river v0.47.0
	github.com/riverqueue/river/riverdriver/riversqlite v0.47.0
	github.com/stretchr/testify v1.12.1
	modernc.org/sqlite v1.60.1
)

require (
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/resilienthttp/resilienthttp/internal/sqlitekit v0.1.0 // indirect
	github.com/riverqueue/river/riverdriver v0.47.0 // indirect
	github.com/riverqueue/river/rivershared v0.47.0 // indirect
	github.com/riverqueue/river/rivertype v0.47.0 // indirect
	github.com/tidwall/gjson v1.19.0 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	modernc.org/libc v1.77.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

replace github.com/resilienthttp/resilienthttp => ../../../

replace github.com/resilienthttp/resilienthttp/durable/sqlitestore => ../../../durable/sqlitestore

replace github.com/resilienthttp/resilienthttp/internal/sqlitekit => ../../../internal/sqlitekit
