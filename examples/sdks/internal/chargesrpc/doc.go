// Package chargesrpc has messages that protoc-gen-go has generated. Its package chargesrpcconnect
// has clients of protoc-gen-connect-go.
package chargesrpc

//go:generate go run github.com/bufbuild/buf/cmd/buf@v1.75.0 generate --template buf.gen.yaml .
