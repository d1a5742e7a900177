// A whole receiver on net/http and pgx: verify, BEGIN, inbox_receive, the action, COMMIT, answer.
// PAYOUTS_SECRETS holds one "whsec_..." secret, or two with a space between during a rotation;
// PGHOST, PGDATABASE and so on name the database.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"receiver/webhook"
)

var secrets = strings.Fields(os.Getenv("PAYOUTS_SECRETS"))

type reply struct {
	Key       string  `json:"key"`
	Outcome   string  `json:"outcome"`
	AppliedAt *string `json:"applied_at"`
	Proof     *string `json:"receipt"` // optional, and not made here
	replayed  bool
}

const (
	receiveSQL = `
		SELECT outcome, replayed,
		       to_char(applied_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS applied_at
		  FROM payouts.inbox_receive($1, $2, $3, $4)`
	holdSQL = "INSERT INTO payouts.hold (merchant_id, action, key) VALUES ($1, $2, $3)"
)

func receive(w http.ResponseWriter, r *http.Request, pool *pgxpool.Pool) (reply, error) {
	if r.Method != http.MethodPost {
		return reply{}, webhook.Refused{Status: 405, Reason: "method_not_allowed"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 256<<10)) // what is signed is these bytes
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return reply{}, webhook.Refused{Status: 413, Reason: "body_too_large"}
	} else if err != nil {
		return reply{}, webhook.Refused{Status: 408, Reason: "slow_body"}
	}
	key, err := webhook.Verify(r.Header, body, secrets, time.Now())
	if err != nil {
		return reply{}, err
	}
	hold, err := parse(body, key, r.Header.Get("Idempotency-Key"))
	if err != nil {
		return reply{}, err
	}
	digest, answer, ctx := sha256.Sum256(body), reply{Key: key}, r.Context()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // BEGIN, then COMMIT or ROLLBACK
		row := tx.QueryRow(ctx, receiveSQL, key, digest[:], hold.merchant, hold.sequence)
		if err := row.Scan(&answer.Outcome, &answer.replayed, &answer.AppliedAt); err != nil {
			return err
		}
		if answer.Outcome != "applied" {
			return nil
		}
		_, err := tx.Exec(ctx, holdSQL, hold.merchant, hold.action, key)
		return err
	})
	if err != nil {
		return reply{}, err
	}
	return answer, nil
}

type hold struct {
	merchant, action string
	sequence         int64
}

var aKey = regexp.MustCompile(`^hf_[0-9a-f]{32}$`)

func parse(body []byte, id, idempotencyKey string) (hold, error) {
	var envelope struct {
		Type, Timestamp, Key *string
		Sequence             int64
		Data                 json.RawMessage
	}
	err := json.Unmarshal(body, &envelope)
	if err != nil || envelope.Type == nil || envelope.Timestamp == nil || envelope.Key == nil ||
		envelope.Sequence < 1 || len(envelope.Data) == 0 || envelope.Data[0] != '{' ||
		!aKey.MatchString(*envelope.Key) {
		return hold{}, webhook.Refused{Status: 400, Reason: "bad_body"}
	}
	if *envelope.Key != id || strings.Trim(cmp.Or(idempotencyKey, id), `"`) != id {
		return hold{}, webhook.Refused{Status: 400, Reason: "key_mismatch"}
	}
	action, known := strings.CutPrefix(*envelope.Type, "payout_hold.")
	if !known || (action != "block" && action != "release") {
		return hold{}, webhook.Refused{Status: 400, Reason: "unknown_type"}
	}
	var data struct {
		Merchant string `json:"merchant_id"`
	}
	err = json.Unmarshal(envelope.Data, &data)
	if err != nil || len(data.Merchant) < 1 || len(data.Merchant) > 1024 ||
		strings.Contains(data.Merchant, "\x00") { // which Postgres does not store
		return hold{}, webhook.Refused{Status: 422, Reason: "bad_data"}
	}
	return hold{data.Merchant, action, envelope.Sequence}, nil
}

func respond(w http.ResponseWriter, answer reply, err error) {
	status, header := 200, w.Header()
	switch answer.Outcome {
	case "running":
		status, answer.Outcome = 409, "in_progress"
	case "conflict":
		status = 422
	}
	var content any = answer
	header.Set("Content-Type", "application/json")
	if err != nil {
		var refused webhook.Refused
		if !errors.As(err, &refused) { // sent again, it is applied or a duplicate
			log.Print(err)
			refused = webhook.Refused{Status: 503, Reason: "unavailable"}
		}
		status, content = refused.Status, refused
		header.Set("Content-Type", "application/problem+json")
	} else {
		header.Set("Holdfast-Key-Window", "forever") // until you prune
	}
	if answer.replayed {
		header.Set("Idempotency-Replayed", "true")
	}
	switch status {
	case 405:
		header.Set("Allow", "POST")
	case 409, 503:
		header.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(content)
}

func main() {
	pool, err := pgxpool.New(context.Background(), "")
	if err != nil || len(secrets) == 0 {
		log.Fatalf("PAYOUTS_SECRETS is empty, or the database cannot be used: %v", err)
	}
	server := http.Server{
		Addr:        "127.0.0.1:" + cmp.Or(os.Getenv("PORT"), "8080"),
		ReadTimeout: 10 * time.Second, // for a whole request
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer, err := receive(w, r, pool)
			respond(w, answer, err)
		}),
	}
	log.Fatal(server.ListenAndServe())
}
