// Package storetest tests a quotastore.Store for what the interface promises.
package storetest
