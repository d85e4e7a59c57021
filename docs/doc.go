// Package docs has the pages of the documentation. Its tests try what the pages say.
package docs
