module github.com/resilienthttp/resilienthttp/idempotency/redisstore

go 1.26.0

require (
	github.com/redis/go-redis/v9 v9.23.0
	github.com/resilienthttp/resilienthttp v0.1.0
	github.com/resilienthttp/resilienthttp/internal/dbtest v0.1.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/resilienthttp/resilienthttp => ../../

replace github.com/resilienthttp/resilienthttp/internal/dbtest => ../../internal/dbtest
