// Package webhook verifies that a request is a genuine delivery. Standard library only.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	anID        = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)
	aTimestamp  = regexp.MustCompile(`^(0|[1-9][0-9]{0,11})$`)
	aSignature  = regexp.MustCompile(`^v1,([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)$`)
	headerNames = []string{"webhook-id", "webhook-timestamp", "webhook-signature"}
	onceOnly    = append([]string{"content-encoding"}, headerNames...)
)

// Refused is the error for a request that is not a genuine delivery.
type Refused struct {
	Status int    `json:"status"` // of the answer
	Reason string `json:"reason"`
}

func (r Refused) Error() string { return r.Reason }

// Verify returns webhook-id or Refused. Pass http.Request.Header, the raw bytes of the body, and
// "whsec_..." texts, two during a rotation. Compare the result with the `key` of the parsed body.
func Verify(
	header map[string][]string, body []byte, secrets []string, now time.Time,
) (string, error) {
	fields := map[string][]string{}
	for name, values := range header {
		fields[strings.ToLower(name)] = append(fields[strings.ToLower(name)], values...)
	}
	for _, name := range onceOnly {
		if len(fields[name]) > 1 {
			return refuse("duplicate_header")
		}
	}
	for _, name := range onceOnly {
		if len(fields[name]) == 1 && strings.ContainsFunc(fields[name][0], beyondASCII) {
			return refuse("bad_header")
		}
	}
	for _, name := range headerNames {
		if len(fields[name]) == 0 || fields[name][0] == "" {
			return refuse("missing_header")
		}
	}
	for _, encoding := range fields["content-encoding"] {
		if strings.ToLower(encoding) != "identity" {
			return refuse("encoded_body")
		}
	}
	id, timestamp := fields[headerNames[0]][0], fields[headerNames[1]][0]
	if !anID.MatchString(id) {
		return refuse("bad_id")
	}
	if !aTimestamp.MatchString(timestamp) {
		return refuse("bad_timestamp")
	}
	seconds, _ := strconv.ParseInt(timestamp, 10, 64)
	if now.Unix()-seconds > 300 {
		return refuse("too_old")
	}
	if now.Unix()-seconds < -300 {
		return refuse("too_new")
	}
	entries := strings.Split(fields[headerNames[2]][0], " ")
	if len(entries) > 16 {
		return refuse("too_many_signatures")
	}
	var given [][]byte
	for _, entry := range entries {
		if found := aSignature.FindStringSubmatch(entry); found != nil {
			mac, _ := base64.StdEncoding.DecodeString(found[1])
			given = append(given, mac)
		}
	}
	if len(given) == 0 {
		return refuse("bad_signature")
	}
	genuine := false
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			return "", errors.New("a secret is not whsec_ and base64")
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		for _, candidate := range given {
			genuine = hmac.Equal(mac.Sum(nil), candidate) || genuine // constant time
		}
	}
	if !genuine {
		return refuse("no_match")
	}
	return id, nil
}

func refuse(reason string) (string, error) {
	switch reason {
	case "too_old", "too_new", "no_match":
		return "", Refused{http.StatusUnauthorized, reason}
	}
	return "", Refused{http.StatusBadRequest, reason}
}

func beyondASCII(r rune) bool { return r > 0x7f }
