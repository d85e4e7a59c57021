// Package conditional changes what a server keeps without losing what others write
// meanwhile: read, change, and write only if nobody else has (RFC 9110 section 13).
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
// [Update] sends a GET, calls the function with what came, and sends a PUT of what it
// returns with If-Match and the entity tag of what it got. Where somebody was quicker
// the server answers 412, and all of it begins anew.
//
// A PUT whose answer is lost is repeated by a resilienthttp.Transport, and the
// repetition of one that was done meets its own effect: a 412 that is one's own
// success. Update sees that there were attempts before, reads, and finds what it wrote.
package conditional
