# Plain curl, no proxy, no token: the only thing that this program knows is the address of the API.
. ./http.sh
echo "GET /v1/items?limit=2: $(call GET '@API@/v1/items?limit=2')"
echo "POST /v1/notes: $(call POST '@API@/v1/notes' '{"text": "written by shell"}')"
