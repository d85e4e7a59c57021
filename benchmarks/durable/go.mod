module github.com/resilienthttp/resilienthttp/benchmarks/durable

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/resilienthttp/resilienthttp v0.1.0
	github.com/resilienthttp/resilienthttp/durable/pgstore v0.1.0
	github.com/resilienthttp/resilienthttp/internal/dbtest v0.1.0
	github.com/riverqueue/river v0.51.0
	github.com/riverqueue/river/riverdriver/riverpgxv5 v0.51.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/resilienthttp/resilienthttp/internal/pgkit v0.1.0 // indirect
	github.com/riverqueue/river/riverdriver v0.51.0 // indirect
	github.com/riverqueue/river/rivershared v0.51.0 // indirect
	github.com/riverqueue/river/rivertype v0.51.0 // indirect
	github.com/tidwall/gjson v1.20.0 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)

replace github.com/resilienthttp/resilienthttp => ../../

replace github.com/resilienthttp/resilienthttp/durable/pgstore => ../../durable/pgstore

replace github.com/resilienthttp/resilienthttp/internal/pgkit => ../../internal/pgkit

replace github.com/resilienthttp/resilienthttp/internal/dbtest => ../../internal/dbtest
