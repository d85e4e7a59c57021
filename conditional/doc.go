// Package conditional updates resources with optimistic locking: read, modify, and write
// only if the resource has not changed since the read (RFC 9110 section 13).
//
//	resp, err := conditional.Update(ctx, client, url, func(current []byte, h http.Header) ([]byte, error) {
//		var user User
//		if err := json.Unmarshal(current, &user); err != nil {
//			return nil, err
//		}
//		user.City = "Bremen"
//		return json.Marshal(user)
//	})
//
// [Update] sends a GET, calls the function with the response body, and sends a PUT with the
// function's result. The PUT has If-Match with the entity tag of the GET. If another writer
// was faster, the server responds 412, and Update starts again with a GET.
//
// A resilienthttp.Transport retries a PUT after a lost response. If the first attempt was
// executed, the retry gets a 412, because the resource has changed. Another writer may have changed
// it too, even to the same content. So Update reads the resource, and returns success only if
// [Updater.Equal] finds a token of this write in it. Otherwise it returns [ErrUnknown], or starts
// again if [Updater.Repeatable] says that this does no harm.
package conditional
