// Package storetest tests that a quotastore.Store does what its documentation says.
package storetest
