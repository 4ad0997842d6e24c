return hooks;
})
